import type { CommandUnknownOpts } from '@commander-js/extra-typings';

export const SHELLS = ['bash', 'zsh'] as const;

/** Each asks `leasehold complete` for what may stand where the cursor is; files where that is nothing. */
export const SCRIPTS: Readonly<Record<(typeof SHELLS)[number], string>> = {
  bash: `_leasehold() {
  local IFS=$'\\n' found
  found=$(leasehold complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=($(compgen -W "$found" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _leasehold leasehold
`,
  zsh: `#compdef leasehold
_leasehold() {
  local -a found
  found=(\${(f)"$(leasehold complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)"})
  (( $#found )) && compadd -a found || _files
}
compdef _leasehold leasehold
`,
};

/** What may stand in place of the last of the words, which follow `leasehold`: commands, options, or values of an option. */
export function candidates(program: CommandUnknownOpts, words: readonly string[]): string[] {
  const before = words.slice(0, -1);
  let command = program;
  for (const word of before) command = command.commands.find((each) => each.name() === word) ?? command;
  const valued = command.options.find(
    (option) => option.required && [option.long, option.short].includes(before.at(-1)),
  );
  if (valued !== undefined) return valued.argChoices ?? [];
  const visible = command.createHelp();
  if (words.at(-1)?.startsWith('-'))
    return visible.visibleOptions(command).map(({ long, short }) => long ?? short ?? '');
  return [
    ...visible.visibleCommands(command).map((each) => each.name()),
    ...command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
  ];
}
