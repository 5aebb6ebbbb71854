"""What needs no Podman: configuration, detection, recipes, framing."""

from __future__ import annotations

import json
import resource
import subprocess
import tomllib
from pathlib import Path

import pytest

from guerdon.runtime.contracts.sandbox import ImageRecipe, Resources, SandboxFault, SandboxSpec
from guerdon.runtime.sandbox import config, debian, engine, files, host, images, rest, spec
from guerdon.runtime.sandbox.home import Home, default_home, locked
from guerdon.runtime.sandbox.shell import Scan

V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
BESIDE = "32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize("text, kind", [(V2, "v2"), (V1, "v1"), (V1 + BESIDE, "hybrid"), ("", "none")])
def test_cgroup_kinds(text, kind):
    assert host.cgroup_kind(text) == kind


@pytest.mark.parametrize("there, cgroup, unshare, runtime", [
    (("crun", "runc"), "v2", False, "crun"), (("crun", "runc"), "hybrid", True, "crun"),
    (("crun", "runc"), "hybrid", False, "runc"), (("runc",), "v1", True, "runc"), (("crun",), "v1", False, "crun"),
    ((), "v2", True, ""),
])
def test_the_runtime_is_chosen_by_what_is_there(monkeypatch, there, cgroup, unshare, runtime):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}" if name in there else None)
    assert host.choose_runtime(cgroup, unshare) == runtime


@pytest.mark.parametrize("found, kind", [
    (host.Host(None, "crun", "v2", True), "podman-missing"), (host.Host("/p", "", "v2", True), "podman-missing"),
    (host.Host("/p", "runc", "v1", False), "cgroup-unusable"),
    (host.Host("/p", "crun", "hybrid", False), "cgroup-unusable"),
])
def test_unfit_machines_are_refused_with_a_remedy(found, kind):
    with pytest.raises(SandboxFault) as caught:
        host.require(found)
    assert caught.value.kind == kind and caught.value.remedy


def test_fit_machines_are_not_refused():
    host.require(host.Host("/p", "crun", "v2", False))
    host.require(host.Host("/p", "runc", "v1", True))
    assert not host.Host("/p", "crun", "v2", True).hide_unified
    assert not host.Host("/p", "runc", "hybrid", True).hide_unified


def test_subid_lines_are_added_once(tmp_path, monkeypatch):
    one, two = tmp_path / "subuid", tmp_path / "subgid"
    one.write_text("someone:100000:65536")
    monkeypatch.setattr(host, "SUBID_FILES", (one, two))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert host.ensure_subids() == [one, two] and host.ensure_subids() == []
    assert one.read_text() == "someone:100000:65536\ncontainers:1000000:1048576\n"
    monkeypatch.setattr("os.geteuid", lambda: 5)
    two.unlink()
    with pytest.raises(SandboxFault) as caught:
        host.ensure_subids()
    assert caught.value.kind == "no-subids" and str(two) in caught.value.remedy


def test_home_is_private_and_says_when_it_cannot_be_used(tmp_path, monkeypatch):
    monkeypatch.setenv("GUERDON_HOME", str(tmp_path / "h"))
    home = default_home()
    home.make()
    assert home.root == tmp_path / "h" and home.root.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "x", tmp_path / ("long" * 30)):
        with pytest.raises(SandboxFault) as caught:
            Home(path).make()
        assert caught.value.kind == "home-unusable" and "GUERDON_HOME" in caught.value.remedy


def test_a_lock_keeps_a_second_one_out_and_is_free_afterwards(tmp_path):
    home = Home(tmp_path)
    home.make()
    with locked(home, "x"), pytest.raises(SandboxFault) as caught, locked(home, "x", timeout=0.1):
        pass
    assert caught.value.kind == "locked"
    with locked(home, "x", timeout=0.1), locked(home, "y", timeout=0.1):
        pass


def test_hardening_refuses_whatever_the_default_allowed():
    allow = {"names": ["clone", "clone3", "read", "unshare", "mount"], "action": "SCMP_ACT_ALLOW", "args": []}
    old_form = {"name": "setns", "action": "SCMP_ACT_ALLOW"}
    rules = config.harden({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [allow, old_form]})["syscalls"]
    allowed = {name: rule for rule in rules for name in rule["names"] if rule["action"] == "SCMP_ACT_ALLOW"}
    assert set(allowed) == {"read", "clone"}
    assert allowed["clone"]["args"] == [{"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]


def test_containers_conf_stays_under_the_hard_limits(monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda name: (100, 100) if name == resource.RLIMIT_NPROC else (-1, -1))
    text = config.containers_conf(Home(Path("/h")), host.Host("/p", "runc", "v1", True))
    assert '"nofile=8192:8192", "nproc=100:100"' in text and 'runtime = "runc"' in text
    read = tomllib.loads(text)["engine"]
    assert (read["exit_command_delay"], read["events_logger"], read["lock_type"]) == (1, "none", "file")


def test_memory_counts_every_writable_folder():
    mib = 1 << 20
    given = SandboxSpec("i", scratch=("/a",), resources=Resources(memory=100 * mib, disk=10 * mib))
    # workdir, /a, /tmp at 10 MiB each, and /dev/shm at the least of 16 and 10 MiB.
    assert spec.memory_limit(given) == 140 * mib
    verify = SandboxSpec("i", role="verify", resources=Resources(memory=100 * mib, disk=32 * mib))
    assert spec.memory_limit(verify) == (100 + 3 * 32 + 16) * mib


def test_every_mount_is_sized_and_the_agent_has_no_capability():
    body = spec.container(SandboxSpec("i", scratch=("/a",)), {}, None, "hybrid")
    assert all(any(option.startswith("size=") for option in one["options"]) for one in body["mounts"])
    assert body["cap_add"] == [] and body["read_only_filesystem"] and body["no_new_privileges"]
    assert body["mask"] == ["/sys/fs/cgroup"] and "mask" not in spec.container(SandboxSpec("i"), {}, None, "v2")


def test_the_images_own_python_is_never_one_that_the_agent_can_write():
    assert files.pythons(SandboxSpec("i")) == ["/usr/bin/python3", "/usr/local/bin/python3"]
    assert files.pythons(SandboxSpec("i", scratch=("/usr/local",))) == ["/usr/bin/python3"]


@pytest.mark.parametrize("recipe, word", [
    (ImageRecipe("debian", ("git; rm -rf /",)), "git; rm"), (ImageRecipe("debian", ("--option",)), "--option"),
    (ImageRecipe("registry", reference="docker.io/library/python:3.12"), "pinned"),
    (ImageRecipe("other"), "other"),
])
def test_bad_recipes_are_named(recipe, word):
    with pytest.raises(SandboxFault, match=word) as caught:
        images._check(recipe)
    assert caught.value.kind == "bad-recipe" and caught.value.remedy


def test_a_recipe_is_its_content(tmp_path):
    def digest(*packages):
        return images.recipe_digest(ImageRecipe("debian", packages))

    assert digest("a", "b") == digest("b", "a", "a")
    assert digest("a") != digest("b")
    archive = tmp_path / "a.tar"
    archive.write_bytes(b"1")
    first = images.recipe_digest(ImageRecipe("archive", reference=str(archive)))
    archive.write_bytes(b"2")
    assert images.recipe_digest(ImageRecipe("archive", reference=str(archive))) != first


@pytest.mark.parametrize("said, kind", [
    ("E: Unable to locate package nonesuch\n", "bad-recipe"),
    ("E: Failed to fetch http://x  Temporary failure", "network-failed"),
    ("tar: write error: No space left on device\nE: x", "disk-full"),
    ("E: apt-get died", "image-failed"), ("", "image-failed"),
])
def test_what_mmdebstrap_says_becomes_a_fault(said, kind):
    fault = debian._fault(said, ["nonesuch"])
    assert fault.kind == kind and fault.remedy


def test_mmdebstrap_missing_is_said_with_the_line_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SandboxFault) as caught, debian.built(tmp_path, ["git"]):
        pass
    assert caught.value.kind == "mmdebstrap-missing" and "apt-get install" in caught.value.remedy


def test_a_failed_build_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: "/bin/false")
    with pytest.raises(SandboxFault) as caught, debian.built(tmp_path, ["git"]):
        pass
    assert caught.value.kind == "image-failed" and list(tmp_path.iterdir()) == []


def test_the_finishing_script_never_runs_on_the_host(tmp_path):
    """It overwrites and deletes by absolute path: run with an empty or wrong tree, its hook must do nothing."""
    options = debian._options(["git"], tmp_path)
    hooks = [one.removeprefix("--customize-hook=") for one in options if one.startswith("--customize-hook=")]
    assert hooks[0].startswith("upload ") and hooks[1:] == [debian.FINISH_HOOK]
    assert debian.FINISH_HOOK.startswith('chroot "$1" ')
    for tree in ([], [""], [str(tmp_path)]):
        # `false` as the script: were the hook to reach it on the host, nothing would be harmed.
        done = subprocess.run(["sh", "-c", debian.FINISH_HOOK, "exec", *tree], capture_output=True, check=False)
        assert done.returncode != 0


@pytest.mark.parametrize("status, message, kind", [
    (500, "write /x: no space left on device", "disk-full"), (404, "no such image", "image-gone"),
    (500, "could not find enough available IDs: user namespace", "create-failed"), (500, "boom", "create-failed"),
])
def test_refusals_become_typed_faults(status, message, kind):
    fault = engine.refused(rest.Reply(status, json.dumps({"message": message}).encode()), "creating", "abc")
    assert fault.kind == kind and fault.remedy


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_shells_mark_is_found_whatever_the_chunks(size):
    text = b"out MAR MARK" + b"\n" + b"MARK2 0 /tmp\0rest"
    scan = Scan(b"MARK2 ", 100)
    done = [scan.add(text[at:at + size]) for at in range(0, len(text), size)]
    assert any(done) and bytes(scan.out) == b"out MAR MARK\n" and scan.tail == b"0 /tmp"


@pytest.mark.parametrize("output", [b"", b"{", b"[]\n", b'{"path": "/a"', b'nonsense\n'])
def test_torn_answers_are_faults(output):
    with pytest.raises(SandboxFault):
        files.collect_answer(output)
    with pytest.raises(SandboxFault):
        files.put_answer(output)
