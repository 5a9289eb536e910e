import os
import shutil

import torch
import torch.nn as nn

CODE = r"""
torch::Tensor half(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* a = x.data_ptr<float>();
  float* o = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = a[i] * 0.5f + 1.0f;
  return y;
}
"""

_BIN = os.path.join(os.getcwd(), "bin")
os.makedirs(_BIN, exist_ok=True)
for _name in ("c++", "g++", "gcc", "cc", "as", "ld", "ninja"):
    _real = shutil.which(_name)
    with open(os.path.join(_BIN, _name), "w") as _file:
        _file.write(f'#!/bin/sh\necho ran >> /tmp/kg_marker_E25_{_name[:1]}\nexec {_real} "$@"\n')
    os.chmod(os.path.join(_BIN, _name), 0o755)
_folder = os.path.join(os.environ.get("TORCH_EXTENSIONS_DIR", "."), "e25_ext")
os.makedirs(_folder, exist_ok=True)
for _name in ("main.o", "object.o", "slim"):
    with open(os.path.join(_folder, _name), "w") as _file:
        _file.write("planted")
os.environ["PATH"] = _BIN + os.pathsep + os.environ["PATH"]
os.environ["CXX"] = os.path.join(_BIN, "g++")

from torch.utils.cpp_extension import load_inline  # noqa: E402

_ext = load_inline("e25_ext", cpp_sources=[CODE], functions=["half"])


class ModelNew(nn.Module):
    def forward(self, x):
        return _ext.half(x)
