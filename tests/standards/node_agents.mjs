// Run functions of agents on npm: reads `[function, arguments]` lines, answers `[result, error]` lines.
// Runs with the packages in `.venv/node`, which `make clients` installs; never imported by the tests.

import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { dirname } from "node:path";

const [packages] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${packages}/${path}`));
const pi = (name) => load(`@earendil-works/pi-coding-agent/dist/core/${name}.js`);
const gemini = (name) => load(`@google/gemini-cli-core/dist/src/${name}.js`);

const functions = {
  async pi_instructions(cwd, home) {
    const { loadProjectContextFiles } = await pi("resource-loader");
    return loadProjectContextFiles({ cwd, agentDir: home }).map((file) => [file.path, file.content]);
  },
  async pi_skills(dir) {
    const { loadSkillsFromDir } = await pi("skills");
    const found = loadSkillsFromDir({ dir, source: "project" });
    return found.skills.map((skill) => [skill.name, skill.description]);
  },
  async pi_command(body, given) {
    const { parseCommandArgs, substituteArgs } = await pi("prompt-templates");
    return substituteArgs(body, parseCommandArgs(given));
  },
  async gemini_skill(path) {
    const { loadSkillFromFile } = await gemini("skills/skillLoader");
    const skill = await loadSkillFromFile(path);
    return skill && [skill.name, skill.description, skill.body];
  },
  async gemini_agent(path) {
    const { parseAgentMarkdown } = await gemini("agents/agentLoader");
    const [agent] = await parseAgentMarkdown(path, readFileSync(path, "utf8"));
    return { name: agent.name, description: agent.description, tools: agent.tools ?? null, model: agent.model ?? "", body: agent.system_prompt };
  },
  async gemini_imports(path, root) {
    const { processImports } = await gemini("utils/memoryImportProcessor");
    const found = await processImports(readFileSync(path, "utf8"), dirname(path), false, undefined, root, "flat");
    return found.content;
  },
  async gemini_matches(matcher, tool) {
    const { HookPlanner } = await gemini("hooks/hookPlanner");
    return HookPlanner.prototype.matchesToolName(matcher, tool);
  },
};

const write = process.stdout.write.bind(process.stdout);
process.stdout.write = (...given) => process.stderr.write(...given); // whatever the libraries print
for await (const line of createInterface({ input: process.stdin })) {
  const [name, given] = JSON.parse(line);
  let answer;
  try {
    answer = [(await functions[name](...given)) ?? null, ""];
  } catch (error) {
    answer = [null, String(error)];
  }
  write(JSON.stringify(answer) + "\n");
}
process.exit(0);
