"""The sandbox in which submissions run: several layers, each of which the machine may or may not offer.

- `options` -- what a user asks for.
- `plan` -- what that means for one process, and the names of the layers.
- `readable` -- which files may be read.
- `enter` -- puts all layers in force: `cgroup`, `namespaces`, `view`, `identity`, `limits`, `landlock`, `seccomp`.
- `watch` -- bounds memory and processes from outside where the kernel does not.
- `warden` -- the judge's part: makes the plans, and cleans up.
- `trial` -- finds out what CUDA can do without on this machine.
- `probe` -- enters it for a look, for ``kernelgym doctor``.

Nothing here imports torch. What is guaranteed where is in ``docs/threat_model.md``.
"""

from __future__ import annotations
