import { type Static, Type } from 'typebox';
import type { StreamTicket as StreamTicketRecord } from '../control/stream-tickets.ts';
import { Instant } from './primitives.ts';

/** What is told of an environment: hints, of which each says where to look. */
export const EnvironmentEvent = Type.Union([
  Type.Object({
    type: Type.Unsafe<'work_available' | 'environment_paused' | 'environment_resumed' | 'hints_missed'>({
      type: 'string',
      enum: ['work_available', 'environment_paused', 'environment_resumed', 'hints_missed'],
    }),
  }),
  Type.Object({ type: Type.Literal('stop_requested'), work_id: Type.String() }),
  Type.Object({ type: Type.Literal('lock_released'), name: Type.String() }),
]);
export type EnvironmentEvent = Static<typeof EnvironmentEvent>;

export const EventsTicketQuery = Type.Object({
  ticket: Type.Optional(
    Type.String({
      maxLength: 64,
      description: 'In the stead of a credential in a header, which a browser cannot send',
    }),
  ),
});

export const StreamTicket = Type.Object({
  ticket: Type.String({ description: 'For the parameter ticket of the event stream; shown this once' }),
  expires_at: Instant,
});

export const toStreamTicket = ({ ticket, expiresAt }: StreamTicketRecord): Static<typeof StreamTicket> => ({
  ticket,
  expires_at: expiresAt,
});
