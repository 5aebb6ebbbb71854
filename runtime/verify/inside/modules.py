"""Imports of the hidden tests: the candidate's modules become remote ones, and none of its code is ever loaded here."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .remote import Handle, Remote, askable


class RemoteModule(types.ModuleType):
    """A module that lives in the candidate's process."""

    _g_is_module = True

    def __init__(self, remote: Remote, name: str) -> None:
        super().__init__(name)
        self.__dict__["_g_remote"] = remote

    def __getattr__(self, name: str) -> Any:
        remote: Remote = self.__dict__["_g_remote"]
        if name == "__all__":
            return remote.channel.request("public", self)
        if not askable(name):
            raise AttributeError(name)
        value = remote.channel.request("get", self, name)
        if isinstance(value, Handle) and value._g_origin is None:
            object.__setattr__(value, "_g_origin", (self.__name__, name))
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or isinstance(value, RemoteModule):
            self.__dict__[name] = value
        else:
            self.__dict__["_g_remote"].channel.request("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            del self.__dict__[name]
        else:
            self.__dict__["_g_remote"].channel.request("del", self, name)

    def __dir__(self) -> list[str]:
        names = self.__dict__["_g_remote"].channel.request("dir", self)
        return [n for n in names if type(n) is str]


class Imports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the candidate's modules, last of all finders: the standard library, the image's packages and the
    hidden tests' own modules always win.

    `trusted` are the folders whose code may run in this process; every other entry of `sys.path` is barred to the
    ordinary finders and is searched for the candidate's modules instead.
    """

    def __init__(self, remote: Remote, trusted: Sequence[str]) -> None:
        self.remote = remote
        self.trusted = tuple(os.path.realpath(t) for t in trusted)
        self.modules: dict[str, RemoteModule] = {}
        remote.modules = self.module

    def install(self) -> None:
        """Put the finder, the bar on `sys.path` and the loader of files in place."""
        sys.meta_path.append(self)
        sys.path_hooks.insert(0, self._bar)
        sys.path_importer_cache.clear()
        original = importlib.util.spec_from_file_location

        def spec_from_file_location(name: str, location: Any = None, **more: Any) -> Any:
            if location is None or self.is_trusted(os.fspath(location)):
                return original(name, location, **more)
            spec = importlib.machinery.ModuleSpec(name, self, origin=os.fspath(location))
            spec.loader_state = os.path.realpath(location)
            return spec

        importlib.util.spec_from_file_location = spec_from_file_location
        original_reload = importlib.reload

        def reload(module: Any) -> Any:
            if not isinstance(module, RemoteModule):
                return original_reload(module)
            self.remote.channel.request("reload", module)
            return module

        importlib.reload = reload

    def is_trusted(self, path: str) -> bool:
        """Whether code at a path may run in this process."""
        real = os.path.realpath(path)
        return any(real == t or real.startswith(t + "/") for t in self.trusted)

    def module(self, name: str) -> RemoteModule:
        """The remote module of a name."""
        if name not in self.modules:
            self.modules[name] = RemoteModule(self.remote, name)
        return self.modules[name]

    def _bar(self, path: str) -> Any:
        if self.is_trusted(path):
            raise ImportError("left to the ordinary finders")
        return _Nothing()

    # -- finder and loader ----------------------------------------------------------------------------------------
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module that the candidate's folders hold."""
        top, _, rest = fullname.partition(".")
        if rest:
            if not isinstance(sys.modules.get(top), RemoteModule):
                return None
        elif not self._holds(top):
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.submodule_search_locations = []
        return spec

    def _holds(self, name: str) -> bool:
        channel = self.remote.channel
        for extra in sys.path:
            if extra not in channel.roots and extra and not self.is_trusted(extra):
                channel.roots = [*channel.roots, extra]
        return any(Path(root, name + ".py").is_file() or Path(root, name).is_dir() for root in channel.roots)

    def create_module(self, spec: Any) -> Any:
        """The remote module, not yet imported there."""
        return self.module(spec.name)

    def exec_module(self, module: Any) -> None:
        """Import it in the candidate's process."""
        where = module.__spec__.loader_state
        try:
            if where is None:
                self.remote.channel.request("import", module.__name__)
            else:
                self.remote.channel.request("import_path", module.__name__, where)
        except SystemExit:
            # Raised here it would end the whole collection.
            self.remote.channel.faults.append(f"importing {module.__name__} called sys.exit")
            raise ImportError(f"importing {module.__name__} called sys.exit") from None


class _Nothing(importlib.abc.PathEntryFinder):
    """The finder of a folder that holds nothing for this process."""

    def find_spec(self, fullname: str, target: Any = None) -> None:
        """Nothing."""
