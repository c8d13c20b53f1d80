"""The web page of ``firm demo`` (extra ``firm[demo]``): nothing here imports gradio before the page is built."""
