"""The models: each written for one episode, `model(context_x, context_y, query_x) -> Output(y, trace)`."""
