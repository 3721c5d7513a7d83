import "uplot/dist/uPlot.min.css";
import "./style.css";
import { createRoot } from "react-dom/client";
import { unpackReport } from "./api";
import { App } from "./app";

const root = document.getElementById("root")!;
unpackReport().then(
  () => createRoot(root).render(<App />),
  (error: Error) => (root.textContent = `This browser cannot read the report: ${error.message}`),
);
