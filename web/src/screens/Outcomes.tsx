// One case that a rollout passed and its sibling failed: the shortest way to a reason.
import { useEffect, useState } from "react";
import { call, type Schemas } from "../api";
import { fixed, oneLine } from "../format";
import { Mark, PLAYED_AFTER } from "../parts/ui";
import { link } from "../router";
import { useShared } from "../shared";

type Line = Schemas["RolloutLine"];
type Page = Schemas["RolloutPage"];
const PAGE = 100;

interface Outcomes {
  right: Line;
  wrong: Line;
  passed: number;
  count: number;
}

/** The last group among these rollouts in which one passed and one failed. */
function lastMixed(lines: Line[]): Outcomes | undefined {
  const groups = new Map<string, Line[]>();
  for (const line of lines) {
    const key = `${line.step} ${line.case}`;
    groups.set(key, [...(groups.get(key) ?? []), line]);
  }
  for (const group of [...groups.values()].reverse()) {
    const right = group.find((line) => line.passed);
    const wrong = group.find((line) => line.passed === false);
    if (right && wrong) return { right, wrong, passed: group.filter((line) => line.passed).length, count: group.length };
  }
  return undefined;
}

async function findMixed(run: string): Promise<Outcomes | undefined> {
  const first = await call<Page>("rollout.list", { run, count: PAGE });
  for (let page = Math.ceil(first.total / PAGE) - 1, tries = 0; page > 0 && tries < 3; page -= 1, tries += 1) {
    const found = lastMixed((await call<Page>("rollout.list", { run, count: PAGE, start: page * PAGE })).rollouts);
    if (found) return found;
  }
  return lastMixed(first.rollouts);
}

export function OutcomesCard({ run, steps }: { run: string; steps: number }) {
  const { session } = useShared();
  const [found, setFound] = useState<Outcomes>();
  const canRead = session.role !== "viewer";
  useEffect(() => {
    let isOver = false;
    if (canRead) findMixed(run).then((each) => !isOver && each && setFound(each), () => undefined);
    return () => {
      isOver = true;
    };
  }, [run, canRead, steps]);
  if (!found) return null;
  const group = link(["run", run, "group", found.wrong.id]);
  return (
    <section className="card outcomes" aria-label="One case, two outcomes">
      <header className="wrap">
        <h2>One case, two outcomes</h2>
        <span className="badge" title={PLAYED_AFTER}>after step {found.right.step}</span>
        <span className="soft">{found.passed} of {found.count} rollouts passed</span>
        <span className="grow" />
        <a className="button primary" href={group}>Why? Compare side by side</a>
      </header>
      <p className="asked"><bdi className="foreign">{oneLine(found.wrong.question || found.wrong.case, 240)}</bdi></p>
      <div className="two">
        <Outcome line={found.right} run={run} />
        <Outcome line={found.wrong} run={run} />
      </div>
    </section>
  );
}

function Outcome({ line, run }: { line: Line; run: string }) {
  return (
    <a className={`outcome ${line.passed ? "right-one" : "wrong-one"}`} href={link(["run", run, "rollout", line.id])}>
      <span className="row"><Mark passed={line.passed} /><b>{line.passed ? "Passed" : "Failed"}</b><span className="grow" /><span className="num soft">reward {fixed(line.reward)}</span></span>
      <bdi className="foreign">{oneLine(line.answer, 200) || "(no answer)"}</bdi>
      {line.passed ? null : <bdi className="foreign bad">{oneLine(line.reason, 200)}</bdi>}
    </a>
  );
}
