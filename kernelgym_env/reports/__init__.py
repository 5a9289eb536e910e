"""Reports: what a run reached, with intervals, beside another run or published figures.

- `kernelgym_env.reports.samples` -- what each trajectory reached.
- `kernelgym_env.reports.figures` -- figures over a fixed set of tasks.
- `kernelgym_env.reports.report` -- all of them together, as data.
- `kernelgym_env.reports.comparing` -- two runs, or a run and a publication.
- `kernelgym_env.reports.published` -- figures of publications.
- `kernelgym_env.reports.page` -- a report as a page of HTML.
"""
