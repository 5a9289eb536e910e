"""Fetching KernelBench's problems from the Hugging Face Hub.

The data set has levels 1 to 3; level 4 comes with a checkout only. The Hub is asked which commit a revision is and
which files it has, then for the Parquet files of that commit.

- `DATASET` -- its name on the Hub.
- `fetch` -- brings it to this machine's cache.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from kernelgym_env._version import __version__
from kernelgym_env.errors import DownloadError, InvalidOptionError, unknown_name
from kernelgym_env.settings import hub_endpoint
from kernelgym_env.tasks import files
from kernelgym_env.tasks.kernelbench import fetched, ids, rows, versions

__all__ = ["DATASET", "fetch"]

DATASET = "ScalingIntelligence/KernelBench"
"""The data set's name on the Hugging Face Hub."""

_SPLIT = re.compile(r"(?:.*/)?level_\d+[^/]*\.parquet")
_HASH = re.compile(r"[0-9a-f]{64}")
_TIMEOUT_S = 60.0
_MAX_BYTES = 64 << 20
_ADVICE = (
    "Check the connection and HF_ENDPOINT, or set KERNELBENCH_DIR to a checkout of KernelBench "
    "(github.com/ScalingIntelligence/KernelBench)."
)


def fetch(revision: str = "main", *, expect: str = "") -> fetched.Manifest:
    """Fetch the data set to the cache, in place of what was fetched before; the same commit is not fetched twice.

    Args:
        revision: a branch, tag or commit of the data set. Only a commit says the same forever.
        expect: a version that the problems must be, one of `kernelgym_env.tasks.kernelbench.versions.VERSIONS`, or the
            content hash that they must have, as an earlier manifest says it. ``""`` takes what comes.

    Returns:
        What was fetched. The tasks ``KernelBench/…`` are read from it where ``KERNELBENCH_DIR`` is not set.

    Raises:
        DownloadError: if the Hub does not answer, or not with this data set.
        InvalidOptionError: if the problems are not what was expected; then the cache stays as it was.
        MissingDataError: without pyarrow, which reads the files.
    """
    if not revision or re.search(r"[\s?#]", revision):
        raise InvalidOptionError(f"A revision is a branch, tag or commit of the data set, got {revision!r}.")
    if expect and expect not in versions.VERSIONS and not _HASH.fullmatch(expect):
        raise unknown_name("version or content hash (64 hexadecimal digits)", expect, versions.VERSIONS)
    files.parquet()
    commit, names = _contents(revision)
    if present := _present(commit):
        _check(present, expect)
        return present
    problems = [row for name in names for row in _problems(commit, name)]
    texts = rows.sources(problems, DATASET)
    version, content = str(versions.identify(texts)), versions.content_hash(texts)
    manifest = fetched.Manifest(DATASET, commit, version, content, len(texts))
    _check(manifest, expect)
    fetched.save(problems, manifest)
    return manifest


def _check(manifest: fetched.Manifest, expect: str) -> None:
    if expect and expect not in (manifest.version, manifest.content_hash):
        raise InvalidOptionError(
            f"The data set at commit {manifest.commit} is {manifest.version} with the content hash "
            f"{manifest.content_hash}; expected was {expect}. Give the revision that has it."
        )


def _present(commit: str) -> fetched.Manifest | None:
    """The manifest of what is in the cache, if it is this commit and whole."""
    try:
        found = fetched.find()
    except InvalidOptionError:
        return None  # damaged, so it is fetched again
    return found[1] if found and found[1].commit == commit else None


def _contents(revision: str) -> tuple[str, list[str]]:
    """The commit of a revision and the names of its files with problems."""
    url = f"{hub_endpoint()}/api/datasets/{DATASET}/revision/{urllib.parse.quote(revision, safe='')}"
    answer = _get(url)
    try:
        data = json.loads(answer)
        commit, names = data["sha"], [entry["rfilename"] for entry in data["siblings"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DownloadError(f"{url} answered with something that describes no data set. {_ADVICE}") from error
    found = sorted(name for name in names if isinstance(name, str) and _SPLIT.fullmatch(name))
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit) or not found:
        raise DownloadError(f"{url} names no commit with files like data/level_1-00000-of-00001.parquet. {_ADVICE}")
    return commit, found


def _problems(commit: str, name: str) -> list[Mapping[str, Any]]:
    """The problems of one file, in the columns that are kept."""
    url = f"{hub_endpoint()}/datasets/{DATASET}/resolve/{commit}/{urllib.parse.quote(name)}"
    problems: list[Mapping[str, Any]] = []
    for row in files.parse_rows(_get(url), name, url):
        problem = rows.row_problem(row)
        if problem is None or ids.make_id(*problem) not in ids.IDS:
            raise DownloadError(f"{url} has a row that is no problem of KernelBench: it has {', '.join(row)}.")
        level, number = problem
        source = rows.row_source(row, url)
        problems.append({"level": level, "problem_id": number, "name": str(row.get("name") or ""), "code": source})
    return problems


def _get(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise InvalidOptionError(f"HF_ENDPOINT must be an http or https address, got {hub_endpoint()!r}.")
    request = urllib.request.Request(url, headers={"User-Agent": f"kernelgym_env/{__version__}"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            data: bytes = answer.read(_MAX_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise DownloadError(f"{url} answered {error.code} {error.reason}. {_ADVICE}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError(f"{url} could not be fetched: {getattr(error, 'reason', error)}. {_ADVICE}") from error
    if len(data) > _MAX_BYTES:
        raise DownloadError(f"{url} has more than {_MAX_BYTES >> 20} MiB, which is no file of this data set.")
    return data
