"""Exit 0 if the configuration is sound: read as data, nothing of the agent is run."""

import configparser
import pathlib
import sys

WANTED = {
    "server": {"host": "127.0.0.1", "port": "8080", "workers": "4"},
    "log": {"level": "info"},
}

parser = configparser.ConfigParser()
try:
    parser.read_string(pathlib.Path("/srv/app/app.ini").read_text(encoding="utf-8"))
    found = {name: dict(parser[name]) for name in parser.sections()}
except (OSError, ValueError, configparser.Error) as problem:
    sys.exit(f"app.ini cannot be read: {problem}")
for section, settings in WANTED.items():
    for key, value in settings.items():
        have = found.get(section, {}).get(key)
        if have != value:
            sys.exit(f"[{section}] {key} is {have!r}")
