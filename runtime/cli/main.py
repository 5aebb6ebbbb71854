"""The `guerdon` command: a table of commands, each loaded on use."""


def main() -> int:
    """Run the command line."""
    return 0
