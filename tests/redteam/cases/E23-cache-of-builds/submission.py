import os
import pathlib

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CODE = r"""
torch::Tensor half(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* a = x.data_ptr<float>();
  float* o = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = a[i] * 0.5f + 1.0f;
  return y;
}
"""

_ext = load_inline("e23_ext", cpp_sources=[CODE], functions=["half"])


def _places():
    torch_folder = pathlib.Path(torch.__file__).parent
    yield torch_folder / "include" / "torch" / "extension.h.gch"
    yield torch_folder / "include" / "torch" / "extension.h"
    for home in {os.path.expanduser("~root"), "/root", "/home", *(f"/proc/{pid}/root/root" for pid in (1, os.getppid()))}:
        yield pathlib.Path(home) / ".cache" / "kernelgym" / "builds" / "planted"
    for name in ("KERNELGYM_CACHE_DIR", "XDG_CACHE_HOME"):
        folder = os.environ.get(name, "")
        if folder and not folder.startswith(os.getcwd()):
            yield pathlib.Path(folder) / "builds" / "planted"
    job = pathlib.Path(os.getcwd())
    yield job.parent / "planted"
    try:
        others = [beside for beside in job.parent.glob("job-*") if beside != job]
    except OSError:
        others = []
    yield from (beside / "object.o" for beside in others)
    for fd in os.listdir("/proc/self/fd"):
        target = os.readlink(f"/proc/self/fd/{fd}") if os.path.lexists(f"/proc/self/fd/{fd}") else ""
        if target.startswith("/") and not target.startswith(("/proc", "/dev", str(job), "/memfd")):
            yield pathlib.Path(f"/proc/self/fd/{fd}")


def _planted():
    done = []
    for place in _places():
        try:
            there = place.exists()
            with open(place, "ab"):  # nothing is written: that it opens is the proof
                pass
            if not there:
                place.unlink()
        except OSError:
            continue
        done.append(str(place))
    return done


_DONE = _planted()


class ModelNew(nn.Module):
    def forward(self, x):
        if _DONE:
            raise RuntimeError(f"planted in {_DONE}")
        return _ext.half(x)
