"""How extensions that a submission builds with torch's `load_inline` and `load` are compiled, in a fraction of the
time.

The submission's process writes torch's build file as ever. In place of running Ninja it asks the judge for the objects
(`client`). The judge makes sure that the flags are known ones (`flags`), looks for an object of the same text, flags
and compiler (`cache`), and otherwise has the compiler run in a sandboxed process of its own in which nothing of a
submission runs (`worker`), with slim headers (`headers`) and a precompiled one (`precompiled`), or else with torch's
own (`service`). Whatever is out of the ordinary is built by torch alone, in the submission's process.

What is guaranteed, and how to switch it off, is in ``docs/builds.md``. Nothing here runs what was built.
"""

from __future__ import annotations
