"""Node templates: predict the next node of a group from an existing node, a recorded node or an estimate."""

from trimtab.autoscaling.template.build import build_templates
from trimtab.autoscaling.template.node_template import NodeTemplate, TemplateOrigin, Templates

__all__ = ["NodeTemplate", "TemplateOrigin", "Templates", "build_templates"]
