import { fixed, number, signed, visible, words } from "../format";
import { type Judgement, passedOf, type RolloutRecord } from "../records";
import { Text } from "./Conversation";
import { Mark } from "./ui";

export function Verdicts({ judgements }: { judgements: Judgement[] }) {
  if (!judgements.length) return <p className="faint" style={{ padding: "8px 14px" }}>No measure judged this rollout.</p>;
  return (
    <div>
      {judgements.map((judgement, place) => (
        <div className="verdict" key={place}>
          <Mark passed={passedOf(judgement)} />
          <b style={{ fontWeight: 550 }}>{visible(judgement.measure)}</b>
          <span className="num faint">
            {judgement.outcome === "scored" ? fixed(judgement.score) : words(judgement.outcome)}
            {judgement.weight === 0 ? " · no reward" : ""}
          </span>
          <span className="reason"><Text>{judgement.reason}</Text></span>
        </div>
      ))}
    </div>
  );
}

export function Facts({ record }: { record: RolloutRecord }) {
  const facts: [string, string][] = [
    ["Ending", words(record.ending)],
    ["Turns", number(record.turns)],
    ["Tool calls", number(record.tool_calls.length)],
    ["Tokens sampled", number(record.tokens.sampled)],
    ["Tokens of prompts", number(record.tokens.prompt)],
    ...(record.dropped ? ([["No gradient", record.dropped]] as [string, string][]) : []),
    ["Split", record.case.split],
    ["Expected", record.case.expected === null ? "–" : visible(JSON.stringify(record.case.expected) ?? "–").slice(0, 300)],
  ];
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{visible(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Reward({ record }: { record: RolloutRecord }) {
  return (
    <dl className="stats" style={{ margin: 0 }}>
      <div className="stat"><dt>Reward</dt><dd>{fixed(record.reward)}</dd></div>
      {record.advantage === undefined ? null : (
        <div className="stat"><dt>Advantage</dt><dd className={record.advantage > 0.005 ? "good" : record.advantage < -0.005 ? "bad" : ""}>{signed(record.advantage)}</dd></div>
      )}
    </dl>
  );
}
