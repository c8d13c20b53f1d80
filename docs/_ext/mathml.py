"""Formulas as MathML, which browsers draw without scripts or the network; docutils translates the LaTeX."""

from docutils import nodes
from docutils.utils.math import latex2mathml


def inline(translator, node):
    """A formula within a sentence."""
    translator.body.append(str(latex2mathml.tex2mathml(node.astext())))
    raise nodes.SkipNode


def block(translator, node):
    """A formula of its own, with its number where it has a label."""
    translator.body.append('<div class="math-block">')
    translator.body.append(str(latex2mathml.tex2mathml(node.astext(), as_block=True)))
    if node.get("number"):
        translator.body.append(f'<span class="eqno">({node["number"]})</span>')
    translator.body.append("</div>")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True}
