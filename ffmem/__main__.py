"""Run the command line: `python -m ffmem`."""

from ffmem.cli.start import main

if __name__ == "__main__":
    main()
