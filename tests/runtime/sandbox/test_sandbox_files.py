"""Writing files, and collecting them from trees that an enemy made."""

from __future__ import annotations

import errno
import hashlib

import pytest

from guerdon.runtime.contracts.sandbox import CollectLimits, PutFile, Resources

pytestmark = pytest.mark.podman
MIB = 1024 * 1024


@pytest.fixture
def collect(arun, box):
    def take(*globs, **limits):
        arun(box.quiesce())
        return arun(box.collect(globs, CollectLimits(**limits)))

    return take


def paths(found):
    return [one.path for one in found.files]


def test_put_then_collect_gives_the_same_bytes_modes_and_digests(arun, box, collect):
    data = bytes(range(256)) * 5000
    arun(box.put([PutFile("/workspace/z/y/data", data, 0o640), PutFile("/workspace/a.sh", b"", 0o755)]))
    found = collect("/workspace/**")
    assert [(one.path, one.data, one.mode) for one in found.files] == [
        ("/workspace/a.sh", b"", 0o755), ("/workspace/z/y/data", data, 0o640)]
    assert found.files[1].digest == "sha256:" + hashlib.sha256(data).hexdigest()
    assert found.problem is None and found.rejected == ()


def test_the_digest_is_over_paths_modes_and_contents_only(arun, opened):
    def digest(*files):
        box = opened()
        arun(box.put(files))
        return arun(box.collect(["/workspace/**"])).digest

    first = digest(PutFile("/workspace/a", b"1"), PutFile("/workspace/b", b"2"))
    assert first == digest(PutFile("/workspace/b", b"2"), PutFile("/workspace/a", b"1"))
    assert len({first, digest(PutFile("/workspace/a", b"1"), PutFile("/workspace/c", b"2")),
                digest(PutFile("/workspace/a", b"1"), PutFile("/workspace/b", b"2", 0o755)),
                digest(PutFile("/workspace/a", b"1"), PutFile("/workspace/b", b"3"))}) == 4


def test_put_files_are_the_users_own(sh, arun, box):
    arun(box.put([PutFile("/workspace/d/f", b"x")]))
    assert sh("stat -c '%u %g %a' d d/f; echo y >> d/f; cat d/f").stdout == b"1000 1000 755\n1000 1000 644\nxy\n"
    arun(box.put([PutFile("/workspace/d/f", b"new")]))
    assert sh("cat d/f").stdout == b"new"


@pytest.mark.parametrize("path, number", [
    ("/etc/x", errno.EROFS), ("/usr/lib/x/y", errno.EROFS), ("/root/x", errno.EACCES),
    ("/workspace/full", errno.ENOSPC),
    ("/workspace/dir", errno.EISDIR), ("/workspace/file/x", errno.ENOTDIR), ("/workspace/pipe", errno.ENXIO),
    ("/workspace/out", errno.EROFS),
])
def test_put_says_what_the_sandbox_refuses(arun, box, sh, path, number):
    sh("mkdir dir; touch file; mkfifo pipe; ln -s /etc/passwd out")
    with pytest.raises(OSError) as caught:
        arun(box.put([PutFile(path, b"x" * (20 * MIB if path.endswith("full") else 1))]))
    assert (caught.value.errno, caught.value.filename) == (number, path)


@pytest.mark.parametrize("path", ["relative", "/workspace/../etc/x", "/workspace//x", "/"])
def test_put_takes_only_plain_absolute_paths(arun, box, path):
    with pytest.raises(ValueError, match="absolute"):
        arun(box.put([PutFile(path, b"")]))


@pytest.mark.parametrize("glob, wanted", [
    ("/workspace/*", ["a.py", "b.txt", ".h"]),
    ("/workspace/*.py", ["a.py"]),
    ("/workspace/**/*.py", ["a.py", "s/c.py", "s/t/d.py"]),
    ("/workspace/**", ["a.py", "b.txt", ".h", "s/c.py", "s/t/d.py"]),
    ("/workspace/s/**", ["s/c.py", "s/t/d.py"]),
    ("/workspace/?.py", ["a.py"]),
    ("/workspace/[ab].*", ["a.py", "b.txt"]),
    ("/workspace/[!a].*", ["b.txt"]),
    ("/workspace/s/c.py", ["s/c.py"]),
    ("/workspace/s", []),
    ("/workspace/none/*", []),
    ("/workspace/a+py", []),
    ("/work*/a.py", ["a.py"]),
    ("/workspace/*/*/d.py", ["s/t/d.py"]),
])
def test_globs(sh, collect, glob, wanted):
    sh("touch a.py b.txt .h; mkdir -p s/t; touch s/c.py s/t/d.py")
    assert paths(collect(glob)) == sorted("/workspace/" + one for one in wanted)


def test_links_are_never_followed(sh, collect):
    sh("echo own > f; ln -s /etc/passwd l; ln -s /etc d; ln -s . self; ln -s / root; ln f hard; "
       "ln -s /proc/1/environ e")
    found = collect("/workspace/**")
    assert paths(found) == ["/workspace/f", "/workspace/hard"]
    assert sorted(found.rejected) == [f"/workspace/{name}: a symbolic link" for name in "d e l root self".split()]
    assert paths(collect("/workspace/d/passwd")) == paths(collect("/workspace/d/*")) == []
    assert paths(collect("/workspace/self/f", "/workspace/root/etc/passwd")) == []


def test_special_files_are_passed_over_at_once(sh, collect):
    sh("mkfifo p; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"; mknod d c 1 5; "
       "echo x > f")
    found = collect("/workspace/*")
    assert paths(found) == ["/workspace/f"]
    assert sorted(found.rejected) == ["/workspace/p: not a regular file", "/workspace/s: not a regular file"]


def test_a_sparse_terabyte_is_a_problem_at_once_and_only_where_it_matches(sh, collect):
    sh("truncate -s 1T big; echo x > small")
    found = collect("/workspace/*")
    assert found.files == () and "1099511627776 bytes" in found.problem and "/workspace/big" in found.problem
    assert paths(collect("/workspace/small")) == ["/workspace/small"]


def test_bounds_are_exact(sh, collect):
    sh("for i in 1 2 3 4; do head -c 1000 /dev/zero > f$i; done")
    assert len(collect("/workspace/*", files=4, file_bytes=1000, total_bytes=4000).files) == 4
    assert "more than 3 files" in collect("/workspace/*", files=3).problem
    assert "one file may have 999" in collect("/workspace/*", file_bytes=999).problem
    assert "more than 3999 bytes" in collect("/workspace/*", total_bytes=3999).problem


def test_a_huge_number_of_files_is_bounded(sh, collect):
    done = sh("python3 -c \"\nimport os\nfor i in range(30000): os.close(os.open(f'f{i}', os.O_CREAT))\n\"", wall=60)
    assert done.exit_code == 0
    assert "more than 2000 files" in collect("/workspace/*").problem
    assert paths(collect("/workspace/f29999")) == ["/workspace/f29999"]


def test_a_tree_that_eats_all_memory_is_the_agents_failure(arun, opened):
    box = opened(resources=Resources(memory=24 * MIB, disk=2 * MIB, pids=20))
    eat = ("import os\ntry:\n    for i in range(10**7): os.close(os.open('x' * 200 + str(i), os.O_CREAT))\n"
           "except OSError as e: print(e)\n")
    arun(box.run(["python3", "-c", eat], wall=60))
    arun(box.quiesce())
    found = arun(box.collect(["/workspace/nothing"]))
    assert found.files == ()
    arun(box.quiesce())


def test_deep_trees_end(sh, collect):
    sh("python3 -c \"\nimport os\nfor i in range(3000):\n    os.mkdir('d'); os.chdir('d')\nopen('f', 'w')\n\"; "
       "echo x > top")
    found = collect("/workspace/**")
    assert paths(found) == ["/workspace/top"]
    assert len(found.rejected) == 1 and found.rejected[0].endswith("too deep")


def test_odd_names(sh, collect):
    sh("python3 -c \"\nimport os\nfor n in (b'new\\nline', b'bad\\xff', b' ', 'é'.encode(), b'-rf', b'x' * 255):\n"
       "    open(n, 'w').write('x')\nos.mkdir(b'b\\xfe'); open(b'b\\xfe/f', 'w')\n\"")
    found = collect("/workspace/**")
    assert paths(found) == sorted("/workspace/" + name for name in ("new\nline", " ", "é", "-rf", "x" * 255))
    assert sorted(found.rejected) == ["/workspace/b\\udcfe/f: its name is not UTF-8",
                                      "/workspace/bad\\udcff: its name is not UTF-8"]


def test_unreadable_files_are_named(sh, collect):
    sh("echo x > f; chmod 0 f; mkdir d; echo y > d/g; chmod 0 d; echo z > ok")
    found = collect("/workspace/**")
    assert paths(found) == ["/workspace/ok"]
    assert sorted(found.rejected) == ["/workspace/d: Permission denied", "/workspace/f: Permission denied"]


def test_the_agent_cannot_put_itself_between_us_and_the_image(sh, collect):
    """Modules, start-up files and settings that an agent may plant reach no helper."""
    sh("mkdir -p .local/lib json; echo 'raise SystemExit(9)' | tee json.py json/__init__.py sitecustomize.py "
       "usercustomize.py /tmp/os.py /tmp/json.py >/dev/null; echo 'exit 9' > /tmp/.bashrc; "
       "cp /tmp/.bashrc /tmp/.profile")
    assert paths(collect("/workspace/json.py")) == ["/workspace/json.py"]


@pytest.mark.parametrize("glob", ["relative/*", "/workspace/../etc/*", "/workspace/"])
def test_globs_are_absolute(arun, box, glob):
    with pytest.raises(ValueError, match="absolute glob"):
        arun(box.collect([glob]))
