import { readFileSync } from 'node:fs';
import t from 'tap';
import { openApiDocument } from '../openapi/document.ts';

t.test('the committed OpenAPI document is what the routes say; npm run openapi renews it', async (t) => {
  t.equal(readFileSync(new URL('../openapi/work-api.json', import.meta.url), 'utf8'), await openApiDocument());
});
