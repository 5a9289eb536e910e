"""From tasks and observations to text, and from a model's reply back to source.

- `task_prompt` -- what a task's first message says.
- `render_prompt` -- an observation as one text.
- `messages` -- an observation as chat messages.
- `extract_source` -- the source in a reply.
"""

from kernelgym_env.prompts.conversation import messages, render_prompt
from kernelgym_env.prompts.reply import extract_source
from kernelgym_env.prompts.task import task_prompt

__all__ = ["extract_source", "messages", "render_prompt", "task_prompt"]
