import sys


def main():
    return max((line.rstrip("\n") for line in sys.stdin), key=len, default="")


print(main())
