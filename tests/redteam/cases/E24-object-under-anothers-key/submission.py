import gc
import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import include_paths, load_inline

CODE = r"""
torch::Tensor half(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const float* a = x.data_ptr<float>();
  float* o = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o[i] = a[i] * 0.5f + 1.0f;
  return y;
}
"""

_ext = load_inline("e24_ext", cpp_sources=[CODE], functions=["half"])

_TEXT = "int planted() { return 1; }\n"
_HERE = os.getcwd()
with open("planted.h", "w") as _file:
    _file.write(_TEXT)
_GOOD = {"kind": "cxx", "name": "main.cpp", "text": _TEXT, "flags": ["-fPIC", "-std=c++17"], "compiler": "c++"}
_BAD = [
    {"flags": ["-fplugin=./planted.so"]},
    {"flags": ["-include", f"{_HERE}/planted.h"]},
    {"flags": ["-I", _HERE]},
    {"flags": [f"-B{_HERE}"]},
    {"flags": ["-wrapper", f"{_HERE}/planted"]},
    {"flags": ["-specs=planted"]},
    {"flags": ["-o", "/tmp/kg_marker_E24"]},
    {"flags": ["-Wp,-MD,/tmp/kg_marker_E24"]},
    {"flags": ["@planted"]},
    {"flags": ["-isystem", include_paths()[0] + "/../../.."]},
    {"flags": "-fPIC"},
    {"flags": [1]},
    {"name": "../main.cpp"},
    {"name": "slim/torch/types.h"},
    {"name": "object.o/../x.cpp"},
    {"compiler": f"{_HERE}/planted"},
    {"compiler": "c++ -fplugin=./planted.so"},
    {"kind": "nvcc", "compiler": "sh"},
    {"kind": "nvcc", "compiler": ""},
    {"text": 'asm(".incbin \"/proc/self/environ\"");\n'},
    {"text": "#if __has_include(<planted.h>)\n#endif\n"},
    {"text": None},
]


def _taken():
    """Forged requests to which the judge gave an object."""
    taken = []
    clients = [one for one in gc.get_objects() if type(one).__name__ == "Client" and getattr(one, "ask", None)]
    for client in clients:
        for change in _BAD:
            answer, fds = client.ask({"units": [{**_GOOD, **change}]})
            taken += [str(change)] if fds or "declined" not in answer else []
        for request in (None, [], {"units": []}, {"units": [_GOOD] * 1000}, {"units": [None]}):
            answer, fds = client.ask(request)
            taken += [str(request)[:80]] if fds or "declined" not in answer else []
        # what is given beside the text is not looked at
        client.ask({"units": [{**_GOOD, "object": "planted", "key": "0" * 64, "output": "planted"}]})
    return taken


_TAKEN = _taken()


class ModelNew(nn.Module):
    def forward(self, x):
        if _TAKEN:
            raise RuntimeError(f"taken: {_TAKEN}")
        return _ext.half(x)
