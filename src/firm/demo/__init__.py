"""The web page of ``firm demo`` (extra ``firm[demo]``); `serve` alone imports gradio and the files that need it."""
