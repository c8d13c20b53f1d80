"""The web page of ``firm demo`` (extra ``firm[demo]``); `serve` alone imports gradio and the files that need it.

To read the code, begin with `firm.demo.app`, which starts the page, and `firm.demo.page`, which lays it out. What a
visitor asks for becomes a `Request`, the `Restorer` computes it, and the tabs in `firm.demo.results` show it.
"""
