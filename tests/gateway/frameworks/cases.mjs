// The tools of the agents on Node: those of cases.py.
export const SYSTEM = "You calculate with the tools.";

export const FUNCTIONS = {
  add: ({ a, b }) => String(a + b),
  multiply: ({ a, b }) => String(a * b),
};

const DESCRIPTIONS = {
  add: "Add two whole numbers.",
  multiply: "Multiply two whole numbers.",
};

export const SCHEMA = {
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
  type: "object",
  additionalProperties: false,
};

export const TOOLS = Object.keys(FUNCTIONS).map((name) => ({
  type: "function",
  function: { name, description: DESCRIPTIONS[name], parameters: SCHEMA },
}));
