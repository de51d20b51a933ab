# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest


def round_to_bf16(values):
    """float32 as the raw bits of bfloat16, to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_float(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def weights(n, k, seed=0, exceptions=0):
    """Raw bits of bfloat16 [n, k]; `exceptions` of them far outside of any window."""
    random = np.random.default_rng(seed)
    bits = round_to_bf16(random.standard_normal((n, k)) * 0.02)
    odd = np.array([0x0000, 0x8000, 0x0001, 0x7F80, 0xFF80, 0x7FC1, 0x7149, 0x0249], np.uint16)
    places = random.choice(n * k, exceptions, replace=False)
    bits.reshape(-1)[places] = random.choice(odd, exceptions)
    return bits


@pytest.fixture(params=[(16, 64), (48, 100), (1, 1), (33, 7), (257, 513)], ids=str)
def shape(request):
    return request.param


def pytest_sessionfinish(session, exitstatus):
    """A run in which nothing ran is no success: 5, as if nothing had been collected."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and reporter and not reporter.stats.get("passed"):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
