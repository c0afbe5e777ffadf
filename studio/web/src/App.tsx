// The whole page: toolbar, palette, canvas, inspector, problems, status line, and the dialog that is open.

import { ReactFlowProvider } from "@xyflow/react";
import { AddDialog } from "./dialogs/AddDialog";
import { ExamplesDialog, OpenDialog, SaveAsDialog } from "./dialogs/FileDialogs";
import { GradientsDialog } from "./dialogs/GradientsDialog";
import { LoopDialog, SweepDialog } from "./dialogs/LoopDialogs";
import { ResultDialog } from "./dialogs/ResultDialog";
import { AskDialog, RenameDialog, ShortcutsDialog, TextDialog } from "./dialogs/SmallDialogs";
import { DataDialog } from "./dialogs/DataDialog";
import { TrainDialog } from "./dialogs/TrainDialog";
import { inCell } from "./host";
import { Canvas } from "./parts/Canvas";
import { Inspector } from "./parts/Inspector";
import { PageTabs } from "./parts/PageTabs";
import { Palette } from "./parts/Palette";
import { Problems } from "./parts/Problems";
import { RunsDock } from "./parts/RunsDock";
import { Banners, StatusLine } from "./parts/Status";
import { Toolbar } from "./parts/Toolbar";
import { useStore } from "./store";

function OpenedDialog() {
  const dialog = useStore((state) => state.dialog);
  switch (dialog?.kind) {
    case "add":
      return <AddDialog adding={dialog.adding} />;
    case "open":
      return <OpenDialog />;
    case "examples":
      return <ExamplesDialog />;
    case "save as":
      return <SaveAsDialog />;
    case "loop":
      return <LoopDialog />;
    case "sweep":
      return <SweepDialog target={dialog.target} />;
    case "data":
      return <DataDialog key={dialog.path} path={dialog.path} at={dialog.at} />;
    case "train":
      return <TrainDialog />;
    case "shortcuts":
      return <ShortcutsDialog />;
    case "gradients":
      return <GradientsDialog output={dialog.output} />;
    case "rename":
      return <RenameDialog block={dialog.block} />;
    case "result":
      return <ResultDialog key={`${dialog.block}:${dialog.pin}`} block={dialog.block} pin={dialog.pin} element={dialog.element} />;
    case "text":
      return <TextDialog block={dialog.block} name={dialog.name} attribute={dialog.attribute} />;
    case "ask":
      return <AskDialog {...dialog} />;
    default:
      return null;
  }
}

export function App() {
  const panels = useStore((state) => state.panels);
  return (
    <ReactFlowProvider>
      <div className={inCell ? "studio in-cell" : "studio"}>
        <Toolbar />
        <Banners />
        <div className="rooms">
          {panels.palette && <Palette />}
          <main aria-label="Page">
            <h1 className="hidden">rowgrad studio</h1>
            {!inCell && <PageTabs />}
            <div className="canvas-room" id="canvas" role="tabpanel" aria-label="Blocks and wires" data-tour="canvas">
              <Canvas />
            </div>
            <RunsDock />
            <Problems />
            <div id="menus" />
          </main>
          {panels.inspector && <Inspector />}
        </div>
        <StatusLine />
        <OpenedDialog />
      </div>
    </ReactFlowProvider>
  );
}
