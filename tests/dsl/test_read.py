"""Reading files from disk."""

import pytest

from guerdon.dsl.diagnostic import Diagnostic
from guerdon.dsl.parser import MAX_BYTES, parse, read
from guerdon.dsl.source import Source


def test_a_file_is_read_under_its_name(tmp_path):
    (tmp_path / "a.task").write_bytes("x = \"é\"\r\n".encode())
    source = read(tmp_path / "a.task", "packs/a.task")
    assert source == Source("packs/a.task", 'x = "é"\r\n')
    assert parse(source)[1] == ()


def test_not_utf8_names_the_byte_and_the_line(tmp_path):
    (tmp_path / "a.task").write_bytes(b"x = 1\ny = \"\xff\"\n")
    found = read(tmp_path / "a.task", "a.task")
    assert isinstance(found, Diagnostic) and found.code == "T007"
    assert "0xFF" in found.message and "line 2" in found.message


def test_too_large(tmp_path):
    with (tmp_path / "a.task").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    found = read(tmp_path / "a.task", "a.task")
    assert (found.code, "16 MiB" in found.message) == ("T007", True)


@pytest.mark.parametrize("name", ["missing.task", ".", "a\0b"])
def test_unreadable(tmp_path, name):
    found = read(tmp_path / name, name)
    assert found.code == "T008" and found.help
