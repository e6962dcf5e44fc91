"""Template nodes: what a group would add, learned from its real nodes or estimated from what its object says."""

from trimtab.autoscaling.template.build import templates
from trimtab.autoscaling.template.node_template import NodeTemplate, TemplateOrigin, Templates

__all__ = ["NodeTemplate", "TemplateOrigin", "Templates", "templates"]
