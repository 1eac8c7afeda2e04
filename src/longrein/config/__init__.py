"""The user's files and environment: settings in layers, trust, instructions, model choice, secrets."""

from longrein.config.environment import (
    config_dir,
    describe_environment,
    environment,
    home_folder,
    project_file,
    state_dir,
    user_file,
)
from longrein.config.found_files import FoundFile, found_files, found_note
from longrein.config.instructions import (
    Instructions,
    load_instructions,
    nested_instructions,
    project_root,
)
from longrein.config.model_choice import Probe, choose_model, subagent_model
from longrein.config.settings import known_secrets, load_settings
from longrein.config.settings_file import remember_rule
from longrein.config.skill_library import SkillFiles
from longrein.config.subagent_types import load_subagent_types
from longrein.config.trust import TrustedFolders, distrust, is_trusted, read_trusted, trust, trust_unit
from longrein.config.trust_preview import left_out_files, trust_preview

__all__ = [
    "FoundFile",
    "Instructions",
    "Probe",
    "SkillFiles",
    "TrustedFolders",
    "choose_model",
    "config_dir",
    "describe_environment",
    "distrust",
    "environment",
    "found_files",
    "found_note",
    "home_folder",
    "is_trusted",
    "known_secrets",
    "left_out_files",
    "load_instructions",
    "load_settings",
    "load_subagent_types",
    "nested_instructions",
    "project_file",
    "project_root",
    "read_trusted",
    "remember_rule",
    "state_dir",
    "subagent_model",
    "trust",
    "trust_preview",
    "trust_unit",
    "user_file",
]
