#!/usr/bin/env node
/** The command `leasehold`: what it does stands in `src/cli/command.ts`. */
import '../main.ts';
