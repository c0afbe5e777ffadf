// The lesson that is being taken: one step at a time, ticked off when the page shows that it was done.

import { useEffect, useState } from "react";
import { LESSONS, type Lesson } from "../lessons/lessons";
import { say, store, useStore } from "../store";
import { open } from "../tabs";

export async function startLesson(lesson: Lesson): Promise<void> {
  if (!(await open(lesson.opens))) return;
  store.set(({ panels }) => ({ lesson: { id: lesson.id, step: 0, reached: 0 }, tour: null, why: null, lookedAt: "", panels: { ...panels, inspector: true } }));
  say(`Lesson: ${lesson.title}.`);
}

const end = (): void => store.set({ lesson: null });

export function LessonPanel() {
  const taken = useStore((state) => state.lesson);
  const lesson = LESSONS.find((one) => one.id === taken?.id);
  const step = lesson?.steps[taken?.step ?? 0];
  const missing = useStore((state) => (step?.missing ? step.missing(state) : null));
  const [answer, setAnswer] = useState<number | null>(null);
  useEffect(() => setAnswer(null), [step]);
  const isDone = step ? (step.question ? answer === step.question.right : missing === null) : false;
  const at = taken?.step ?? 0;
  // What was done once stays done: a later step may change the page again.
  const reached = (taken?.reached ?? 0) > at || isDone;
  useEffect(() => {
    if (!taken || !isDone || taken.reached > at) return;
    store.set({ lesson: { ...taken, reached: at + 1 } });
  }, [taken, isDone, at]);
  if (!taken || !lesson || !step) return null;
  const go = (to: number): void => store.set({ lesson: { ...taken, step: to } });
  const last = at === lesson.steps.length - 1;
  return (
    <section className="tour lesson" aria-label="Lesson">
      <h2>{lesson.title}</h2>
      <p className="lesson-steps" role="img" aria-label={`Step ${at + 1} of ${lesson.steps.length}`}>
        {lesson.steps.map((one, number) => (
          <span key={one.title} className={number < taken.reached ? "done" : number === at ? "now" : ""} />
        ))}
      </p>
      <h3>
        {at + 1} of {lesson.steps.length}: {step.title}
      </h3>
      <p>{step.text}</p>
      {step.question && (
        <fieldset>
          <legend className="hidden">{step.text}</legend>
          {step.question.choices.map((choice, number) => (
            <label key={choice} className="choice">
              <input type="radio" name="lesson-answer" checked={answer === number} onChange={() => setAnswer(number)} /> {choice}
            </label>
          ))}
        </fieldset>
      )}
      <p className={reached ? "lesson-done" : "lesson-missing"} aria-live="polite">
        {step.question ? (answer === null ? "Choose an answer." : isDone ? step.question.because : "Not quite; look again.") : reached ? "✓ Done." : missing}
      </p>
      <div className="buttons">
        {last ? (
          <button type="button" className="primary" disabled={!reached} onClick={end}>
            Finish the lesson
          </button>
        ) : (
          <button type="button" className="primary" disabled={!reached} onClick={() => go(at + 1)}>
            Next step
          </button>
        )}
        {at > 0 && (
          <button type="button" onClick={() => go(at - 1)}>
            Back
          </button>
        )}
        <button type="button" onClick={end}>
          Leave the lesson
        </button>
      </div>
    </section>
  );
}
