// Plans of operators: what each would do and cost; the owner starts, revises or refuses it.
import { useState } from "react";
import { call, type Schemas, useCall } from "../api";
import { ago, duration, number, visible, when } from "../format";
import { ask, valueOf } from "../parts/Ask";
import { Crumbs } from "../parts/Crumbs";
import { Empty, Loading, Problem, toast } from "../parts/ui";
import { go, link, setParams, usePlace } from "../router";
import { useShared } from "../shared";

type Line = Schemas["PlanLine"];

export function PlansScreen() {
  const place = usePlace();
  const plans = useCall<Schemas["PlanList"]>("plan.list", {}, 5);
  const chosen = place.params.get("plan");
  if (plans.error) return <Problem error={plans.error} />;
  if (!plans.data) return <Loading />;
  const line = plans.data.plans.find((each) => each.plan === chosen) ?? plans.data.plans[0];
  return (
    <>
      <Crumbs items={[["Plans", null]]} />
      <div className="title"><h1>Plans</h1><span className="soft">What operators would like to run, and what it would cost.</span></div>
      {line ? (
        <div className="pairs">
          <div className="card pair-list" role="listbox" aria-label="Plans" tabIndex={0}>
            {plans.data.plans.map((each) => (
              <button key={each.plan} className="pair-item" role="option" aria-selected={each === line} aria-current={each === line} onClick={() => setParams(place, { plan: each.plan })}>
                <div className="row"><Standing line={each} /><span className="grow" /><span className="soft" title={when(each.created)}>{ago(each.created)}</span></div>
                <div className="cut"><b>{each.kind} {visible(each.environment)}</b> <span className="soft">by {each.author}</span></div>
                <div className="cut soft mono">{visible(JSON.stringify(each.settings))}</div>
              </button>
            ))}
          </div>
          <PlanView key={line.plan} line={line} onChange={plans.reload} />
        </div>
      ) : (
        <Empty title="No plans."><p>A plan appears here when an operator makes one, or after <code>sparring plan make</code>.</p></Empty>
      )}
    </>
  );
}

function Standing({ line }: { line: Line }) {
  if (line.run) return <span className="badge good">started</span>;
  return line.is_refused ? <span className="badge bad">refused</span> : <span className="badge accent">open</span>;
}

function PlanView({ line, onChange }: { line: Line; onChange: () => void }) {
  const { session } = useShared();
  const isOpen = !line.run && !line.is_refused;
  const plan = useCall<Schemas["Plan"]>("plan.show", isOpen ? { plan: line.plan } : null);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const perform = async (work: () => Promise<unknown>) => {
    setBusy(true);
    setError(undefined);
    try {
      await work();
      onChange();
    } catch (reason) {
      setError(reason as Error);
    } finally {
      setBusy(false);
    }
  };
  const start = () => perform(async () => {
    const started = await call<Schemas["Started"]>("plan.start", { plan: line.plan });
    toast(`Started ${started.run}`);
    go(link(["run", started.run]));
  });
  const refuse = () => ask({
    title: "Refuse this plan", field: { label: "Why? Its author sees this." }, confirm: "Refuse", isDanger: true,
    perform: async (reason) => {
      await call("plan.refuse", { plan: line.plan, reason });
      onChange();
    },
  });
  const revise = () => ask({
    title: "Revise this plan", text: "Makes a new plan that differs in one setting.", field: { label: "Setting", placeholder: "max_steps=10" }, confirm: "Revise",
    perform: async (change) => {
      const [field, text] = change.split(/=(.*)/s);
      if (!field || text === undefined) throw new Error("write NAME=VALUE");
      const made = await call<Schemas["Plan"]>("plan.revise", { plan: line.plan, field: field.trim(), value: valueOf(text.trim()) });
      onChange();
      go(link(["plans"], { plan: made.plan }));
    },
  });
  return (
    <article className="card">
      <header className="wrap">
        <h2>{line.kind} {visible(line.environment)}</h2><Standing line={line} /><span className="grow" />
        {isOpen ? <button className="button primary" disabled={isBusy || !plan.data?.ready} onClick={start}>Start it</button> : null}
        {isOpen ? <button className="button" disabled={isBusy} onClick={revise}>Revise</button> : null}
        {isOpen && session.role === "owner" ? <button className="button danger" disabled={isBusy} onClick={refuse}>Refuse</button> : null}
        {line.run ? <a className="button" href={link(["run", line.run])}>Open its run</a> : null}
      </header>
      <div className="body stack">
        <p className="soft mono">{line.plan} · by {line.author} ({line.role}) · {when(line.created)}</p>
        {line.refused ? <p className="notice warn">{visible(line.refused)}</p> : null}
        {error ? <Problem error={error} /> : null}
        {plan.error ? <Problem error={plan.error} /> : null}
        {isOpen && plan.isLoading ? <Loading /> : null}
        {plan.data ? <PlanFacts plan={plan.data} /> : null}
      </div>
    </article>
  );
}

function PlanFacts({ plan }: { plan: Schemas["Plan"] }) {
  const cost = Object.entries(plan.cost as Record<string, unknown>).filter(([, value]) => value !== null && value !== "" && typeof value !== "object");
  return (
    <>
      {plan.missing.map((each) => <p key={each.what} className={`notice ${each.standing === "missing" ? "bad" : "warn"}`}>{visible(`${each.what}: ${each.found}. ${each.fix}`)}</p>)}
      <h3>What it would cost</h3>
      <dl className="facts" style={{ maxWidth: 560 }}>
        {cost.map(([name, value]) => <div key={name} style={{ display: "contents" }}><dt>{name.replaceAll("_", " ")}</dt><dd>{typeof value === "number" ? (name.includes("seconds") ? duration(value) : number(value)) : visible(String(value))}</dd></div>)}
      </dl>
      {plan.last_check ? <p className="soft">Last check: <b>{plan.last_check.verdict}</b> {visible(plan.last_check.why ?? "")}</p> : null}
      <h3>Settings that differ from the defaults</h3>
      <div className="scroll-x"><table className="plain"><tbody>
        {Object.entries(plan.settings).map(([name, value]) => <tr key={name}><td className="mono">{visible(name)}</td><td className="mono">{visible(JSON.stringify(value) ?? "")}</td></tr>)}
      </tbody></table></div>
    </>
  );
}
