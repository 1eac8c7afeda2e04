"""The user's files and environment: settings in layers, trust, instructions, model choice,
secrets.
"""

from typing import TYPE_CHECKING

from longrein_context.lazy_names import names_at_first_use

if TYPE_CHECKING:
    from longrein.config.hook_files import (
        LoadedHooks,
        expanded_headers,
        fingerprint,
        load_hooks,
        own_command,
        read_project_hooks,
    )
    from longrein.config.instructions import (
        Instructions,
        load_instructions,
        nested_instructions,
        project_root,
    )
    from longrein.config.model_choice import (
        Probe,
        choose_model,
        full_model_name,
        subagent_model,
    )
    from longrein.config.other_agent_files import (
        FoundFile,
        found_files,
        found_note,
    )
    from longrein.config.plugins import (
        Plugins,
        door_points,
        load_plugins,
        session_points,
    )
    from longrein.config.settings import (
        keep_setting,
        known_secrets,
        load_settings,
        remember_rule,
    )
    from longrein.config.settings_file import shorten_home
    from longrein.config.skill_library import SkillFiles
    from longrein.config.stored_keys import StoredKeys
    from longrein.config.subagent_types import load_subagent_types
    from longrein.config.trusted_folders import (
        TrustedFolders,
        all_kinds,
        distrust,
        is_trusted,
        left_out_files,
        read_trusted,
        shown_head_hooks,
        trust,
        trust_preview,
        trust_unit,
    )
    from longrein.config.user_environment import (
        config_dir,
        describe_environment,
        environment,
        home_folder,
        named_plugins,
        project_file,
        sign_line,
        state_dir,
        user_file,
    )

__getattr__ = names_at_first_use(
    __name__,
    {
        "hook_files": (
            "LoadedHooks expanded_headers fingerprint load_hooks own_command read_project_hooks"
        ),
        "instructions": "Instructions load_instructions nested_instructions project_root",
        "model_choice": "Probe choose_model full_model_name subagent_model",
        "other_agent_files": "FoundFile found_files found_note",
        "plugins": "Plugins door_points load_plugins session_points",
        "settings": "keep_setting known_secrets load_settings remember_rule",
        "settings_file": "shorten_home",
        "skill_library": "SkillFiles",
        "stored_keys": "StoredKeys",
        "subagent_types": "load_subagent_types",
        "trusted_folders": (
            "TrustedFolders all_kinds distrust is_trusted left_out_files read_trusted "
            "shown_head_hooks trust trust_preview trust_unit"
        ),
        "user_environment": (
            "config_dir describe_environment environment home_folder named_plugins project_file "
            "sign_line state_dir user_file"
        ),
    },
)

__all__ = [
    "FoundFile",
    "Instructions",
    "LoadedHooks",
    "Plugins",
    "Probe",
    "SkillFiles",
    "StoredKeys",
    "TrustedFolders",
    "all_kinds",
    "choose_model",
    "config_dir",
    "describe_environment",
    "distrust",
    "door_points",
    "environment",
    "expanded_headers",
    "fingerprint",
    "found_files",
    "found_note",
    "full_model_name",
    "home_folder",
    "is_trusted",
    "keep_setting",
    "known_secrets",
    "left_out_files",
    "load_hooks",
    "load_instructions",
    "load_plugins",
    "load_settings",
    "load_subagent_types",
    "named_plugins",
    "nested_instructions",
    "own_command",
    "project_file",
    "project_root",
    "read_project_hooks",
    "read_trusted",
    "remember_rule",
    "session_points",
    "shorten_home",
    "shown_head_hooks",
    "sign_line",
    "state_dir",
    "subagent_model",
    "trust",
    "trust_preview",
    "trust_unit",
    "user_file",
]
