# SPDX-License-Identifier: Apache-2.0
"""Stands in for SGLang's package of kernels where it is not installed, so that the engine can be
imported: the package index has no build of it for CPUs. Every name exists, and every call raises
NotImplementedError, so nothing that a test sees can have come from here."""

import importlib.machinery
import sys
import types


class _Missing:
    """A function or constant of the package."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self._name}.{name}")

    def __call__(self, *arguments, **options):
        raise NotImplementedError(f"{self._name} is not installed")

    def __hash__(self):
        return hash(self._name)

    def __eq__(self, other):
        return isinstance(other, _Missing) and other._name == self._name


class _Module(types.ModuleType):
    __path__ = []
    __version__ = "0.4.10"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self.__name__}.{name}")


class _Finder:
    """Submodules, whichever the engine asks for."""

    @staticmethod
    def find_spec(name, path, target=None):
        if name.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(name, _Finder, is_package=True)
        return None

    @staticmethod
    def create_module(spec):
        return _Module(spec.name)

    @staticmethod
    def exec_module(module):
        pass


_module = _Module(__name__)
_module.__spec__, _module.__file__ = __spec__, __file__
sys.modules[__name__] = _module
sys.meta_path.insert(0, _Finder)
