"""A family whose template is not prefix-preserving: it forgets what earlier turns thought."""

from sparring.policies.families import Family
from sparring.policies.tool_calls import TaggedJson

FORGETFUL = Family(
    name="forgetful",
    template=(
        "{%- for m in messages %}"
        "{{- '<|im_start|>' + m.role + '\\n' }}"
        "{%- if m.role == 'assistant' and loop.last %}"
        "{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
        "{{- m.content }}"
        "{%- for call in m.tool_calls or [] %}"
        "{{- '<tool_call>' + (call.function | tojson) + '</tool_call>' }}"
        "{%- endfor %}"
        "{{- '<|im_end|>\\n' }}"
        "{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    end_of_turn="<|im_end|>",
    tool_calls=TaggedJson(),
    thinking=("<think>", "</think>"),
)
