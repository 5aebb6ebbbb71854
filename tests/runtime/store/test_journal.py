"""The journal: what was sealed stays, whatever happens to the process or to the file."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from guerdon.runtime.contracts.store import StoreFault
from guerdon.runtime.contracts.trajectory import Outcome
from guerdon.runtime.store.journal import FileJournal


def samples(journal):
    return [s.trajectory.episode.sample for s in journal.scan()]


def test_sealing_twice_is_sealing_once(tmp_path, episode_of):
    with FileJournal(tmp_path) as journal:
        assert journal.seal(episode_of(1)) and journal.seal(episode_of(2))
        assert not journal.seal(episode_of(1, Outcome.PASS))
        assert journal.is_sealed(episode_of(1).trajectory.episode)
        assert list(journal.scan()) == [episode_of(1), episode_of(2)]
    with FileJournal(tmp_path) as journal:
        assert not journal.seal(episode_of(2, Outcome.PASS))
        assert list(journal.scan()) == [episode_of(1), episode_of(2)] and journal.notes == []


def test_an_invalid_episode_runs_again_and_the_last_entry_counts(tmp_path, episode_of):
    with FileJournal(tmp_path) as journal:
        assert journal.seal(episode_of(1, Outcome.INVALID))
        assert not journal.is_sealed(episode_of(1).trajectory.episode)
        assert journal.seal(episode_of(1, Outcome.INVALID)) and journal.seal(episode_of(2))
        assert journal.seal(episode_of(1, Outcome.PASS))
        assert samples(journal) == [1, 1, 2, 1]
        assert [(s.trajectory.episode.sample, s.outcome) for s in journal.latest()] == [
            (2, Outcome.FAIL), (1, Outcome.PASS),
        ]


@pytest.mark.parametrize("cut", [1, 2, 70, 200])
def test_a_torn_last_line_is_dropped_and_said(tmp_path, episode_of, cut):
    with FileJournal(tmp_path) as journal:
        journal.seal(episode_of(1))
        journal.seal(episode_of(2))
    path = tmp_path / "trajectories.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    with FileJournal(tmp_path) as journal:
        assert samples(journal) == [1]
        assert len(journal.notes) == 1 and "torn" in journal.notes[0]
        journal.seal(episode_of(2))
    with FileJournal(tmp_path) as journal:
        assert samples(journal) == [1, 2] and journal.notes == []


@pytest.mark.parametrize("line", [0, 1, 2])
def test_a_damaged_line_goes_to_quarantine_and_is_said(tmp_path, episode_of, line):
    with FileJournal(tmp_path) as journal:
        for sample in range(3):
            journal.seal(episode_of(sample))
    path = tmp_path / "trajectories.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    hurt = lines[line].replace(b'"outcome":"fail"', b'"outcome":"pass"')
    assert hurt != lines[line]
    path.write_bytes(b"".join([*lines[:line], hurt, *lines[line + 1 :]]))
    with FileJournal(tmp_path) as journal:
        assert samples(journal) == [s for s in range(3) if s != line]
        assert "quarantine" in journal.notes[0]
        assert not journal.is_sealed(episode_of(line).trajectory.episode)
        assert journal.seal(episode_of(line))
    assert (tmp_path / "quarantine.jsonl").read_bytes() == hurt
    with FileJournal(tmp_path) as journal:
        assert sorted(samples(journal)) == [0, 1, 2] and journal.notes == []


def test_damage_in_the_middle_and_a_torn_end_together(tmp_path, episode_of):
    with FileJournal(tmp_path) as journal:
        for sample in range(3):
            journal.seal(episode_of(sample))
    path = tmp_path / "trajectories.jsonl"
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data[:-9])
    with FileJournal(tmp_path) as journal:
        assert samples(journal) == [1] and len(journal.notes) == 2


def test_an_entry_of_another_version_is_no_damage(tmp_path, episode_of):
    with FileJournal(tmp_path) as journal:
        journal.seal(episode_of(1))
    path = tmp_path / "trajectories.jsonl"
    body = path.read_bytes()[len(b'{"sealed":') : -len(b',"sha256":"') - 64 - len(b'"}\n')]
    newer = body.replace(b"guerdon.trajectory/1", b"guerdon.trajectory/9")
    line = b'{"sealed":%s,"sha256":"%s"}\n' % (newer, hashlib.sha256(newer).hexdigest().encode())
    path.write_bytes(line)
    with pytest.raises(StoreFault, match="another version"):
        FileJournal(tmp_path)
    assert path.read_bytes() == line


def test_two_runners_cannot_write_one_run(tmp_path, episode_of):
    with FileJournal(tmp_path), pytest.raises(StoreFault, match=rf"pid {os.getpid()}\b"):
        FileJournal(tmp_path)
    FileJournal(tmp_path).close()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFault, match="cannot be written"):
        FileJournal(tmp_path / "file")


WRITER = """
import sys
from pathlib import Path
from guerdon.runtime.contracts.trajectory import *
from guerdon.runtime.store.journal import FileJournal
journal = FileJournal(Path(sys.argv[1]))
for n in range(100_000):
    spec = EpisodeSpec("p", "t", "r", n, 0, "oracle")
    step = Step(Turn(Message("assistant", "x" * 200_000)), (), 0.0)
    journal.seal(Sealed(Trajectory(spec, (), (step,), Counters(), None, ""), Outcome.FAIL, {}, None))
    print(n, flush=True)
"""


def test_killed_at_any_moment_what_was_sealed_stays(tmp_path):
    for go in range(4):
        folder = tmp_path / str(go)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)
        for _ in range(3 + go):
            writer.stdout.readline()
        time.sleep(0.0013 * go)
        os.kill(writer.pid, signal.SIGKILL)
        said = 3 + go + len(re.findall(rb"\d+\n", writer.stdout.read()))
        writer.wait()
        with FileJournal(folder) as journal:
            kept = samples(journal)
            # Everything told as sealed is there, in order; at most the one being told is there besides.
            assert kept == list(range(len(kept))) and said <= len(kept) <= said + 1
