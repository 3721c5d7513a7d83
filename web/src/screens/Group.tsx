// The rollouts of one case in one step, side by side from where they first differ.
import { useMemo } from "react";
import { type Schemas, useCall } from "../api";
import { Crumbs } from "../app";
import { fixed, oneLine, signed, visible } from "../format";
import { Conversation, type Difference } from "../parts/Conversation";
import { Loading, Mark, PLAYED_AFTER, Problem, useKeys } from "../parts/ui";
import { Verdicts } from "../parts/Verdicts";
import { type Message, questionOf, recordPassed, type RolloutRecord } from "../records";
import { go, link, usePlace } from "../router";

export function GroupScreen({ run, rollout }: { run: string; rollout: string }) {
  const log = usePlace().params.get("log") ?? undefined;
  const group = useCall<Schemas["Group"]>("rollout.group", { run, rollout, log });
  useKeys({ u: () => go(link(["run", run, "rollout", rollout], { log })) });
  const records = useMemo(() => {
    const found = (group.data?.rollouts ?? []).map((each) => each.record as unknown as RolloutRecord);
    found.sort((a, b) => (b.reward ?? -1) - (a.reward ?? -1));
    const own = found.findIndex((each) => each.id === rollout);
    if (own > 1) found.splice(1, 0, ...found.splice(own, 1)); // beside the best one
    return found;
  }, [group.data, rollout]);
  const common = useMemo(() => commonMessages(records), [records]);
  if (group.error) return <Problem error={group.error} />;
  if (!group.data) return <Loading />;
  const best = Math.max(...records.map((record) => record.reward ?? -Infinity));
  const isLive = new Set(records.map((record) => record.reward)).size > 1;
  const isTraining = records.some((record) => record.advantage !== undefined && record.advantage !== null);
  const first = records[0];
  const passed = records.filter(recordPassed).length;
  return (
    <>
      <Crumbs items={[["Runs", []], [run, ["run", run]], ["rollouts", ["run", run, log === "validation" ? "validation" : "rollouts"]], [rollout, ["run", run, "rollout", rollout]], ["group", null]]} />
      <div className="title">
        <h1 className="question"><bdi>{first ? oneLine(questionOf(first)) : ""}</bdi></h1>
        {isTraining ? <span className="badge" title={PLAYED_AFTER}>after step {group.data.step}</span> : null}
        <span className="soft">{passed} of {records.length} rollouts passed</span>
        {isTraining ? <span className={`badge ${isLive ? "good" : "warn"}`}>{isLive ? "rewards differ: it carries a gradient" : "equal rewards: no gradient"}</span> : null}
      </div>
      <div className="siblings" tabIndex={0} role="region" aria-label="Rollouts side by side">
        {records.map((record) => (
          <article key={record.id} className={`card sibling ${record.reward === best && isLive ? "best" : ""} ${record.id === rollout ? "this" : ""}`}>
            <header>
              <div className="row wrap">
                <Mark passed={recordPassed(record)} />
                <a title={visible(record.id)} href={link(["run", run, "rollout", record.id], { log })}>Rollout <b>{visible(record.id.split(".").pop() ?? "")}</b></a>
                {record.id === rollout ? <span className="badge accent">this</span> : null}
                <span className="grow" />
                <span className="num">reward <b>{fixed(record.reward)}</b></span>
                {record.advantage === undefined ? null : <span className={`num ${record.advantage > 0 ? "good" : record.advantage < 0 ? "bad" : "soft"}`}>advantage <b>{signed(record.advantage)}</b></span>}
              </div>
            </header>
            <Verdicts judgements={record.judgements} />
            <div style={{ borderTop: "1px solid var(--line)" }}>
              <Conversation record={record} common={common} differs={differenceOf(record, first, common)} other={first} />
            </div>
          </article>
        ))}
      </div>
      <p className="faint" style={{ marginTop: 8 }}>
        {records.length < 2 ? "This case was played once: there is no other rollout to compare with." : <>The best one is on the left, {isLive ? "and the one you came from beside it" : "and all rewards are equal"}. Coloured text is where a rollout first differs from the best one.</>}
      </p>
    </>
  );
}

function textOf(message: Message | undefined): string {
  if (!message) return "";
  return JSON.stringify([message.role, message.thinking ?? "", message.content, (message.calls ?? []).map((call) => [call.tool, call.arguments])]);
}

/** How many of the first messages all records share. The last shared one stays in view; where nothing
 * differs, so does all that follows the question. */
export function commonMessages(records: RolloutRecord[]): number {
  const first = records[0];
  if (!first) return 0;
  let count = 0;
  while (count < first.messages.length && records.every((record) => count < record.messages.length && textOf(record.messages[count]) === textOf(first.messages[count]))) count += 1;
  const isSame = records.every((record) => record.messages.length === count);
  if (isSame) count = first.messages.findLastIndex((message) => message.role === "user") + 1;
  return Math.max(0, count - 1);
}

export function differenceOf(record: RolloutRecord, other: RolloutRecord | undefined, common: number): Difference | undefined {
  if (!other || other === record) return undefined;
  const most = Math.max(record.messages.length, other.messages.length);
  for (let place = common; place < most; place += 1) {
    const [mine, theirs] = [record.messages[place], other.messages[place]];
    if (!mine) return undefined;
    if (textOf(mine) === textOf(theirs)) continue;
    const [a, b] = [mine.content, theirs?.content ?? ""];
    let letter = 0;
    while (letter < a.length && letter < b.length && a[letter] === b[letter]) letter += 1;
    return { message: place, letter };
  }
  return undefined;
}
