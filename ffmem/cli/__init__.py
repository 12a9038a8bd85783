"""The command line: options, output and progress that the commands share."""
