// What build.mjs has built before, as text.
declare module "built:*" {
  const text: string;
  export default text;
}
