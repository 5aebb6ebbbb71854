import sys


def main():
    return len(sys.stdin.read().split())


print(main())
