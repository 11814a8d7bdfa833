/** The version of this package, as package.json has it. A test holds the two together: a build moves files, and one would have to be found. */
export const VERSION = '0.1.0';
