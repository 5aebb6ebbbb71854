"""The content-addressed store."""

import hashlib
import os

import pytest

from guerdon.runtime.contracts.home import home
from guerdon.runtime.contracts.store import AssetFault
from guerdon.runtime.store.assets import AssetStore


def test_bytes_come_back_by_their_sha256(tmp_path):
    store = AssetStore(tmp_path / "assets")
    want = "sha256:" + hashlib.sha256(b"x").hexdigest()
    assert not store.has(want)
    assert store.put(b"x") == want == store.put(b"x")
    assert store.read(want) == b"x" and store.has(want)
    files = [p for p in (tmp_path / "assets").rglob("*") if p.is_file()]
    assert [str(p.relative_to(tmp_path / "assets")) for p in files] == [f"sha256/{want[7:9]}/{want[9:]}"]


def test_missing_altered_and_wrong_names_say_file_and_remedy(tmp_path):
    store = AssetStore(tmp_path)
    digest = store.put(b"x")
    store.path(digest).write_bytes(b"y")
    with pytest.raises(AssetFault, match="was altered.*delete it"):
        store.read(digest)
    assert store.put(b"x") == digest and store.read(digest) == b"x"
    with pytest.raises(AssetFault, match="is not in.*compile the pack again"):
        store.read("sha256:" + "0" * 64)
    for name in ("sha256:../../etc/passwd", "x", "sha256:" + "A" * 64, digest + "0"):
        with pytest.raises(AssetFault, match="no `sha256:` digest"):
            store.read(name)


def test_a_store_that_cannot_be_written_is_an_asset_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AssetFault, match="cannot be written"):
        AssetStore(tmp_path / "file").put(b"x")


def test_home(monkeypatch, tmp_path):
    monkeypatch.setenv("GUERDON_HOME", str(tmp_path))
    assert home() == tmp_path and AssetStore().root == tmp_path / "assets"
    monkeypatch.delenv("GUERDON_HOME")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert str(home()) == "/var/lib/guerdon"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(home()) == "/home/somebody/.local/share/guerdon"
