"""`python -m tilewright`: the command line."""

from .cli.main import main

main()
