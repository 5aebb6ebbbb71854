"""Images by content: a recipe is built, pulled or loaded once, and found again by the digest of the recipe."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from pathlib import Path
from typing import Any

import podman.errors
import requests

from guerdon.runtime.contracts.sandbox import ImageRecipe, SandboxFault
from guerdon.runtime.sandbox import debian
from guerdon.runtime.sandbox.engine import Engine
from guerdon.runtime.sandbox.home import locked, unusable

DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
VERSION = 3
"""Part of every recipe's digest: raised when the way of building changes."""


def recipe_digest(recipe: ImageRecipe) -> str:
    """The name of a recipe's image: over all that decides its content, with an archive's own bytes."""
    facts: list[Any] = [VERSION, recipe.kind, sorted(set(recipe.packages)), recipe.reference]
    if recipe.kind == "debian":
        facts.append(debian.codename())
    if recipe.kind == "archive":
        facts[3] = _file_digest(Path(recipe.reference))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    """SHA-256 of a file. Raises SandboxFault `image-unreadable`."""
    try:
        with path.open("rb") as source:
            return hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as error:
        raise SandboxFault("image-unreadable", f"cannot read the image archive {path}: {error.strerror}",
                           "give the path of an OCI or docker archive") from error


async def ensure(engine: Engine, recipe: ImageRecipe) -> str:
    """The id of the recipe's image. Raises SandboxFault."""
    _check(recipe)
    name = "localhost/guerdon/" + (await asyncio.to_thread(recipe_digest, recipe))[:40] + ":latest"
    found = await find(engine, name)
    if found is not None:
        return found
    stop = threading.Event()
    try:
        return await asyncio.to_thread(_make_locked, engine, recipe, name, stop)
    except asyncio.CancelledError:
        # A thread cannot be cancelled, and the program would wait for it at its end.
        stop.set()
        raise


async def find(engine: Engine, name: str) -> str | None:
    """The id of the image with this name."""
    reply = await engine.request("GET", f"/images/{name}/json")
    if reply.status not in (200, 404):
        raise engine.failed(reply.message)
    return str(reply.json()["Id"]) if reply.status == 200 else None


def _check(recipe: ImageRecipe) -> None:
    """Raise SandboxFault `bad-recipe` for what no image can be made of."""
    if recipe.kind == "debian":
        wrong = [one for one in recipe.packages if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]*", one)]
        if wrong:
            raise SandboxFault("bad-recipe", f"{wrong[0]!r} is not the name of a Debian package",
                               "use names as `apt-cache search` shows them")
    elif recipe.kind == "registry":
        if not DIGEST.fullmatch(recipe.reference):
            raise SandboxFault("bad-recipe", f"the image {recipe.reference!r} is not pinned by digest",
                               "write NAME@sha256:…")
    elif recipe.kind != "archive":
        raise SandboxFault("bad-recipe", f"there is no image kind {recipe.kind!r}",
                           "use debian, registry or archive")


def _make_locked(engine: Engine, recipe: ImageRecipe, name: str, stop: threading.Event) -> str:
    """Make the image unless another process did so while we waited for the lock."""
    with locked(engine.home, "images", stop=stop):
        return engine._with_client(lambda client: _make(client, engine, recipe, name, stop))


def _present(client: Any, name: str) -> str | None:
    """The id of an image that is there."""
    return str(client.images.get(name).id).removeprefix("sha256:") if client.images.exists(name) else None


def _make(client: Any, engine: Engine, recipe: ImageRecipe, name: str, stop: threading.Event) -> str:
    """Make the image unless it is there; its name is given last, so a killed run leaves nothing that looks whole."""
    try:
        present = _present(client, name)
        if present is not None:
            return present
        if recipe.kind == "debian":
            return _import(client, engine, recipe, name, stop)
        return _pull(client, recipe, name) if recipe.kind == "registry" else _load(client, recipe, name)
    except podman.errors.APIError as error:
        raise _fault(error, recipe) from error
    except requests.exceptions.RequestException:
        raise  # a lost service, which the engine knows how to mend; it is an OSError, too
    except OSError as error:
        raise unusable(engine.home.tmp, error) from error


def _import(client: Any, engine: Engine, recipe: ImageRecipe, name: str, stop: threading.Event) -> str:
    """Build a Debian tree and import it; Podman writes image and name in one step."""
    packages = sorted(set(recipe.packages))
    with debian.built(engine.home.tmp, packages, stop) as tarball, tarball.open("rb") as source:
        reply = client.api.post("/images/import", params={"reference": name}, data=source,
                                headers={"Content-Type": "application/x-tar"})
        reply.raise_for_status()
    found = _present(client, name)
    if found is None:
        raise SandboxFault("image-gone", "the image vanished right after it was imported", "run it again")
    return found


def _pull(client: Any, recipe: ImageRecipe, name: str) -> str:
    """Pull by digest and name it."""
    if not client.images.exists(recipe.reference):
        client.images.pull(recipe.reference)
    return _tag(client, client.images.get(recipe.reference), name)


def _load(client: Any, recipe: ImageRecipe, name: str) -> str:
    """Load an archive that holds one image."""
    loaded = list(client.images.load(file_path=recipe.reference))
    if len(loaded) != 1:
        raise SandboxFault("bad-recipe", f"the archive {recipe.reference} holds {len(loaded)} images",
                           "save exactly one: podman save -o FILE IMAGE")
    return _tag(client, loaded[0], name)


def _tag(client: Any, image: Any, name: str) -> str:
    """Name an image after its recipe."""
    image.tag(name.removesuffix(":latest"), "latest")
    found = _present(client, name)
    if found is None:
        raise SandboxFault("image-gone", f"the image {name} could not be named", "run it again")
    return found


def _fault(error: podman.errors.APIError, recipe: ImageRecipe) -> SandboxFault:
    """What Podman's refusal of an image means."""
    text = str(error.explanation or error)
    if "no space left" in text:
        return SandboxFault("disk-full", "no space left in the storage for an image",
                            "free space, or point GUERDON_HOME at a larger disk")
    if recipe.kind == "registry":
        return SandboxFault("registry-unreachable", f"{recipe.reference} could not be pulled: {text[:300]}",
                            "see that the registry can be reached from here, or use an archive or debian recipe")
    return SandboxFault("image-failed", f"the image could not be imported: {text[:300]}",
                        "see that it is an OCI or docker archive")
