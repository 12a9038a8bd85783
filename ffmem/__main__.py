"""Run the command line: `python -m ffmem`."""

from ffmem.cli.main import main

if __name__ == "__main__":
    main()
