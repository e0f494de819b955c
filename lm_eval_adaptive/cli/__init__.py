"""The command line: parser, options, one file a command. Imports everything below it, lazily."""
