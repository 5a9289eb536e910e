"""From tasks and observations to text, and from a model's reply back to source.

- `task_prompt`, `device_facts` -- what a task's first message says.
- `render_prompt` -- an observation as one text.
- `messages` -- an observation as chat messages.
- `extract_source` -- the source in a reply.
"""

from kernelgym_env.prompts.conversation import messages, render_prompt
from kernelgym_env.prompts.reply import extract_source
from kernelgym_env.prompts.task import device_facts, task_prompt

__all__ = ["device_facts", "extract_source", "messages", "render_prompt", "task_prompt"]
