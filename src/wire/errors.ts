import { Type } from 'typebox';

/** Every answer with a status of 400 and above (contract §1). */
export const ErrorEnvelope = Type.Object(
  {
    type: Type.Literal('error'),
    error: Type.Object({
      type: Type.String({ examples: ['not_found_error'] }),
      message: Type.String(),
      details: Type.Optional(Type.Object({ error_code: Type.Optional(Type.String()) }, { additionalProperties: true })),
    }),
    request_id: Type.String({ description: 'The same value as the header request-id', examples: ['req_V1StGXR8Z5jd'] }),
  },
  { $id: 'Error', title: 'Error' },
);
